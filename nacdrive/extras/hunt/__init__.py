"""``nacdrive hunt``: episodes that a policy fails and a reference driver passes, what they have in common, and a
policy that learnt from them.
"""
