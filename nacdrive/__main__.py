"""``python -m nacdrive``: the same as the command ``nacdrive``."""

from nacdrive.cli.main import main

if __name__ == "__main__":
    main()
