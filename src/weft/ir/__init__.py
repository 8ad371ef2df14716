"""The one intermediate representation: graph, loop, kernel, program and plan level."""
