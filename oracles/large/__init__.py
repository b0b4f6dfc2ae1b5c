"""Large cases: judged by parts, against peers, and by checks of products."""
