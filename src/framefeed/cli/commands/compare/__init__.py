"""Commands that compare: readers with each other, frames with a linear decode."""
