import NIOCore
import NIOPosix
import NIOSSL
import TestSupport

/// Passes on what the load sends, over TLS or as it is, so that a server's own work can be compared: the load itself speaks no TLS.
final class Relay: LoadTarget {
    let port: Int
    let processIdentifier: Int32
    private let listener: any Channel

    /// - Parameter certificate: The server's, in PEM; nil: the server speaks plain HTTP.
    init(to server: ServerProcess, certificate: String?) async throws {
        let context = try certificate.map { path in
            var configuration = TLSConfiguration.makeClientConfiguration()
            configuration.trustRoots = .file(path)
            return try NIOSSLContext(configuration: configuration)
        }
        let target = server.port
        listener = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
            .childChannelInitializer { inbound in
                inbound.setOption(.autoRead, value: false).flatMap {
                    ClientBootstrap(group: inbound.eventLoop)
                        .channelInitializer { outbound in
                            outbound.eventLoop.makeCompletedFuture {
                                if let context {
                                    try outbound.pipeline.syncOperations.addHandler(
                                        NIOSSLClientHandler(context: context, serverHostname: nil))
                                }
                                try outbound.pipeline.syncOperations.addHandler(Passing(to: inbound))
                            }
                        }
                        .connect(host: "127.0.0.1", port: target)
                }.flatMap { outbound in
                    inbound.eventLoop.makeCompletedFuture { try inbound.pipeline.syncOperations.addHandler(Passing(to: outbound)) }
                }.flatMap { inbound.setOption(.autoRead, value: true) }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        port = listener.localAddress?.port ?? 0
        processIdentifier = server.processIdentifier
    }

    func stop() async throws { try await listener.close() }

    private final class Passing: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer

        private let other: any Channel

        init(to other: any Channel) { self.other = other }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            other.writeAndFlush(unwrapInboundIn(data), promise: nil)
        }

        func channelInactive(context: ChannelHandlerContext) { other.close(promise: nil) }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }
}
