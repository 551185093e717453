"""nacdrive: small continuous-time attention networks that drive."""

__version__ = "0.1.0"
