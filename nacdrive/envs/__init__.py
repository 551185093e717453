"""Things to drive: CarRacing with its fast renderer, the built-in lake track."""
