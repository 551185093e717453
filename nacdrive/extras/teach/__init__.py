"""``nacdrive drive --teach``: a policy learns from a person who takes the wheel (HG-DAgger, Kelly et al. 2019)."""
