"""Child process of ``framefeed doctor`` that checks the GPU."""

from framefeed.doctor.child import main

if __name__ == "__main__":
    main()
