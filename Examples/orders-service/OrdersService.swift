import Foundation
import HapaxClient
import HapaxClientService
import Hummingbird
import Logging
import ServiceLifecycle
import UnixSignals

/// A small shop that embeds the event client.
@main
@available(macOS 14, *)
enum OrdersService {
    static func main() async {
        let arguments = CommandLine.arguments.dropFirst()
        if arguments.contains("--help") || arguments.contains("-h") {
            print(OrdersSettings.help, terminator: "")
            return
        }
        guard arguments.isEmpty else { fail(OrdersSettings.help, code: 64) }
        let settings: OrdersSettings
        do {
            settings = try OrdersSettings(environment: ProcessInfo.processInfo.environment)
        } catch {
            fail("orders-service: \(error)\n", code: 64)
        }
        do {
            try await run(settings)
        } catch {
            fail("orders-service: \(error)\n", code: 1)
        }
    }

    private static func run(_ settings: OrdersSettings) async throws {
        let logger = Logger(label: "orders-service", factory: { StreamLogHandler.standardError(label: $0) })
        let events = EventClient(settings.events, logger: logger)
        let router = Router()
        OrderRoutes(events: events).add(to: router)
        let server = Application(
            router: router, configuration: ApplicationConfiguration(address: .hostname(settings.host, port: settings.port)),
            onServerRunning: { channel in
                print("listening on http://\(settings.host):\(channel.localAddress?.port ?? settings.port)")
                fflush(nil)
            },
            logger: logger)
        // Stopped in reverse order: first the server answers its last requests, then their events are delivered.
        var group = ServiceGroupConfiguration(services: [events, server], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
        // A request that never ends would keep the server, and with it the client, from stopping. What is left then is on disk.
        group.maximumGracefulShutdownDuration = .seconds(settings.drainSeconds + OrdersSettings.requestSeconds)
        try await ServiceGroup(configuration: group).run()
    }

    private static func fail(_ message: String, code: Int32) -> Never {
        FileHandle.standardError.write(Data(message.utf8))
        exit(code)
    }
}
