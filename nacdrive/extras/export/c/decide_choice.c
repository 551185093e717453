    int best = 0;
    for (int i = 1; i < POLICY_OUTPUTS; i++) {
        if (action->outputs[i] > action->outputs[best]) best = i;
    }
    action->choice = best;
    action->steering = actions[best][0];
    action->throttle = actions[best][1];
    action->brake = actions[best][2];
