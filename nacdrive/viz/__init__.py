"""Pictures of Ticks and rows: films, reports, maps, curves, where a policy looks."""
