"""What two or more classical methods share: targets, solvers, neighbours, forests, answers. numpy only."""
