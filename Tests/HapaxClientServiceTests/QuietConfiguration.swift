import HapaxClient
import TestSupport

extension EventClient.Configuration {
    /// Of a client that sends only when it is asked to.
    static func quiet(in directory: TemporaryDirectory) -> EventClient.Configuration {
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "test-key", queueDirectory: directory.path("queue"))
        configuration.uploads.interval = nil
        return configuration
    }
}
