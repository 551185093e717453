    float limited[POLICY_OUTPUTS];
    for (int i = 0; i < POLICY_OUTPUTS; i++) {
        float value = action->outputs[i];
        limited[i] = value < -1.0f ? -1.0f : value > 1.0f ? 1.0f : value;
    }
    float pedal = POLICY_OUTPUTS > 1 ? limited[POLICY_OUTPUTS - 1] : 0.0f;
    action->choice = -1;
    action->steering = limited[0];
    action->throttle = pedal > 0.0f ? pedal : 0.0f;
    action->brake = pedal < 0.0f ? -pedal : 0.0f;
