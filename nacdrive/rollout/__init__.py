"""The closed loop: observation, policy, action, Tick; recording, evaluation and DAgger."""
