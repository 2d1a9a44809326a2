"""Profiles the calling process without a launcher.

``watch()`` does from inside what ``graphsignal-run`` does from outside: it prepares the environment so that the GPU
runtime loads the profiling library when it is initialised, and starts the sidecar that serves
``http://127.0.0.1:18259/signals`` for this process. Standard library only.
"""

from graphsignal._watch import watch

__all__ = ["watch"]
__version__ = "0.1.0"
