"""Parts of the integration tests: real servers, the daemon under test, and an independent judge."""
