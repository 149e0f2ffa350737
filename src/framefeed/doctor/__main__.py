"""``python -m framefeed.doctor``: the child process that looks at a GPU."""

from framefeed.doctor.child import main

if __name__ == "__main__":
    main()
