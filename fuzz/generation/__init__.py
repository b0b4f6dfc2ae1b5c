"""Cases from contracts: strategies, engines, and what steers them."""
