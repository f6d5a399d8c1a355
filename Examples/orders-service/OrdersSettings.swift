import Foundation
import HapaxClient

/// How the service is configured: by its environment alone.
struct OrdersSettings: Sendable {
    var host = "127.0.0.1"
    var port = 8081
    /// nil: the shop runs without events.
    var events: EventClient.Configuration?
    /// Seconds to deliver what is left when the service stops.
    var drainSeconds = 8
    /// Seconds for requests that are under way when the service stops.
    static let requestSeconds = 5

    static let help = """
        usage: orders-service

        Takes orders (POST /orders) and tracks each as one event, order_placed, durably before it answers.
        Prints "listening on http://HOST:PORT" when it accepts connections; stops on SIGTERM and SIGINT.

          SHOP_HOST           127.0.0.1
          SHOP_PORT           8081; 0 picks one
          SHOP_DRAIN_SECONDS  8: how long to deliver what is left when stopped; with the 5 seconds that requests under way
                              have, less than the supervisor's grace period
          HAPAX_SERVER        the ingest server's URL; without it the shop runs without events
          HAPAX_KEY           the project's write key, or
          HAPAX_KEY_FILE      a file that holds it
          HAPAX_QUEUE         hapax-data/orders-queue: the directory of the event queue; any number of processes share it

        """

    struct Problem: Error, CustomStringConvertible {
        let description: String
    }

    init(environment: [String: String]) throws(Problem) {
        if let host = environment["SHOP_HOST"] { self.host = host }
        if let port = try Self.number("SHOP_PORT", in: 0...65_535, environment) { self.port = port }
        if let seconds = try Self.number("SHOP_DRAIN_SECONDS", in: 0...3_600, environment) { drainSeconds = seconds }
        do throws(StartError) { events = try EventClient.Configuration(environment: environment) } catch {
            throw Problem(description: "\(error)")
        }
        if environment["HAPAX_QUEUE", default: ""].isEmpty { events?.queue.directory = URL(filePath: "hapax-data/orders-queue") }
        events?.drainTime = .seconds(drainSeconds)
    }

    private static func number(
        _ name: String, in range: ClosedRange<Int>, _ environment: [String: String]
    ) throws(Problem) -> Int? {
        guard let text = environment[name] else { return nil }
        guard let number = Int(text), range.contains(number) else {
            throw Problem(description: "\(name) must be \(range.lowerBound) to \(range.upperBound)")
        }
        return number
    }
}
