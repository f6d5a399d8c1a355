import Hummingbird
import Logging
import NIOCore

/// The context of one request.
@available(macOS 14, *)
struct IngestContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    /// The name of the request in the log, in its answer's header and in its refusal.
    let requestID: String
    let channel: any Channel

    init(source: Source) {
        coreContext = .init(source: source)
        channel = source.channel
        // Hummingbird's id, which a logger that keeps no metadata lacks.
        requestID = source.logger[metadataKey: "hb.request.id"]?.description ?? RequestID().description
    }

    /// Whether there is still a connection for the answer.
    var isConnected: Bool { channel.isActive }
}
