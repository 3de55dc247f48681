"""The admission of model calls to their endpoints: at what pace, in which order, and after an outage."""
