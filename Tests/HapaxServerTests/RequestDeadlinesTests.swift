import NIOCore
import NIOEmbedded
import Testing

@testable import HapaxServer

@Suite("RequestDeadlines, without a socket (I13, I17)")
struct RequestDeadlinesTests {
    @Test("a connection that is set up once the stop has begun is closed: it missed the event", arguments: [false, true])
    func lateConnectionHearsOfTheStop(isStopping: Bool) throws {
        let channel = EmbeddedChannel(handler: RequestDeadlines(limits: RequestDeadlineLimits()) { isStopping })
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        channel.embeddedEventLoop.run()
        #expect(channel.isActive == !isStopping)
        _ = try? channel.finish(acceptAlreadyClosed: true)
    }
}
