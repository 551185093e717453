/* $title

   $about

   Made by nacdrive $version from $source
   (sha256 $sha256).

   policy_state holds all memory ($state_kb kB); nothing is allocated. One state drives one car, and two states may
   be used in two threads. Link with -lm. */

#ifndef POLICY_H
#define POLICY_H

#include <stdint.h>

#define POLICY_HEIGHT $height    /* rows of a frame */
#define POLICY_WIDTH $width     /* columns of a frame */
#define POLICY_OUTPUTS $outputs     /* numbers that the network gives */
#define POLICY_ACTIONS $actions     /* choices among which it decides; 0: it steers continuously */
#define POLICY_WINDOW $window      /* frames that a decision may depend on, the present one included */
#define POLICY_GAP_S $gap_s   /* typical time between two decisions in its training, seconds */

#ifdef __cplusplus
extern "C" {
#endif

/* What policy_step answers. */
enum {
    POLICY_OK = 0,
    POLICY_BAD_TIME = 1 /* t_s is not finite$or_goes_back; the state is as it was */
};

typedef struct {
    float steering; /* -1 full left .. 1 full right */
    float throttle; /* 0 .. 1$held */
    float brake;    /* 0 .. 1$held */
    int choice;     /* index of the chosen action; -1 where it steers continuously */
    float outputs[POLICY_OUTPUTS]; /* $outputs_meaning */
} policy_action;

typedef struct {
$memory
    int count; /* frames remembered, up to the window */
    int next;  /* where the next one is kept */
    float scratch[2][$scratch];
} policy_state;

/* Names of the outputs. */
extern const char *const policy_labels[POLICY_OUTPUTS];

/* Forget the episode before; to be called before the first frame too. */
void policy_reset(policy_state *state);

/* Decide on one frame.

   frame: POLICY_HEIGHT x POLICY_WIDTH x 3 bytes, RGB, row by row.
   t_s: when it was taken, seconds since the episode began.
   speed_mps: metres per second; this network does not use it. */
int policy_step(policy_state *state, const uint8_t *frame, double t_s, float speed_mps, policy_action *action);

#ifdef __cplusplus
}
#endif

#endif
