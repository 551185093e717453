"""The laws of the NAC layer, each as numbers and as a picture. ``benchmarks/nac_theory.py`` runs them all."""
