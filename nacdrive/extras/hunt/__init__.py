"""``nacdrive hunt``: episodes that a policy fails and a reference passes, their causes, a policy taught by them."""
