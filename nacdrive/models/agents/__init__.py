"""Networks of agents: what they see of a frame, vision, memory, and their files."""
