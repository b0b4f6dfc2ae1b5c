"""Python parses in one thread at a time."""

from threading import Lock

PARSING = Lock()
"""Held wherever a thread of several may call `ast.parse`.

Until Python 3.13 all threads count in one number how deep they are: of two that parse at once, one may end with
"SystemError: AST constructor recursion depth mismatch" (python/cpython#106905).
"""
