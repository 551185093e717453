/* Reads frames, prints a decision for each: policy_try FRAMES [REPEATS]

   FRAMES holds, for each frame, its time in seconds (a double) and POLICY_HEIGHT * POLICY_WIDTH * 3 bytes. Where the
   time goes back a new episode begins. With REPEATS the file is driven through so often, and what a decision took is
   printed instead. */

#include "policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint8_t frame[POLICY_HEIGHT * POLICY_WIDTH * 3];
static policy_state state;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments)
{
    if (count < 2 || count > 3) {
        fprintf(stderr, "usage: %s FRAMES [REPEATS]\n", arguments[0]);
        return 2;
    }
    FILE *file = fopen(arguments[1], "rb");
    if (file == NULL) {
        fprintf(stderr, "%s: cannot be read\n", arguments[1]);
        return 2;
    }
    int repeats = count > 2 ? atoi(arguments[2]) : 0;
    size_t taken = 0, room = 0;
    double *took_us = NULL;
    for (int repeat = 0; repeat < (repeats > 0 ? repeats : 1); repeat++) {
        double t_s, before = 0.0;
        rewind(file);
        policy_reset(&state);
        while (fread(&t_s, sizeof t_s, 1, file) == 1 && fread(frame, sizeof frame, 1, file) == 1) {
            policy_action action;
            if (t_s < before) policy_reset(&state);
            before = t_s;
            clock_t start = clock();
            if (policy_step(&state, frame, t_s, 0.0f, &action) != POLICY_OK) {
                fprintf(stderr, "%g is no time that can follow\n", t_s);
                return 1;
            }
            double us = 1e6 * (double)(clock() - start) / (double)CLOCKS_PER_SEC;
            if (repeats > 0) {
                if (taken == room) {
                    room = room ? 2 * room : 1024;
                    double *more = realloc(took_us, room * sizeof *more);
                    if (more == NULL) return 1;
                    took_us = more;
                }
                took_us[taken++] = us;
                continue;
            }
            printf("%.6f %d %.9g %.9g %.9g", t_s, action.choice, (double)action.steering, (double)action.throttle,
                   (double)action.brake);
            for (int i = 0; i < POLICY_OUTPUTS; i++) printf(" %.9g", (double)action.outputs[i]);
            printf("\n");
        }
    }
    fclose(file);
    if (taken > 0) {
        qsort(took_us, taken, sizeof *took_us, ascending);
        printf("%zu decisions: median %.0f us, p99 %.0f us\n", taken, took_us[taken / 2], took_us[taken * 99 / 100]);
    }
    free(took_us);
    return 0;
}
