"""The supervisor's side: batches go to workers, and every death is accounted for."""
