"""The benchmark that users run: everybody's readers on the same videos."""
