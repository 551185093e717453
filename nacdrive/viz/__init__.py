"""Pictures of Ticks and rows: films, reports, maps, looks. Below ``rollout/``, whose evaluations film and report."""
