"""Gymnasium's CarRacing-v3, drawn only when looked at, with a fast approximate renderer."""

import warnings

with warnings.catch_warnings():
    # SWIG's types have no module, which Python warns of. Were that an error (python -W error), it would be raised where
    # SWIG does not look, and the interpreter would crash; so Box2D is loaded here, before anything uses it.
    warnings.simplefilter("ignore", DeprecationWarning)
    import Box2D  # noqa: F401
