// What the service is configured with, and what it gives out.
@_exported import HapaxClient
