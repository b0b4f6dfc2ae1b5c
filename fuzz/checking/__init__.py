"""The pipeline of a case: materialize, run in the sandbox, judge."""
