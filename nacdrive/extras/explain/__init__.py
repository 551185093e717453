"""``nacdrive explain``: figures of what a policy looks at, its neurons and wiring, and which head tells most."""
