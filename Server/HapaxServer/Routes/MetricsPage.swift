import HapaxModel
import Hummingbird

/// `GET /metrics`: what all parts of the server tell of themselves.
@available(macOS 14, *)
final class MetricsPage: Sendable {
    let keys: Keys
    let store: any EventStore
    let writer: GroupCommitWriter
    let metrics: ServerMetrics
    let watch: StoreWatch
    let connections: Connections
    /// By name.
    let turns: [(String, Turns)]
    let answers: Budget
    let certificate: Certificate?
    /// Unix milliseconds.
    let startedAt: Int64
    /// The latest text: readers in a loop must not cost the senders.
    private let last = Locked<(text: [UInt8], until: ContinuousClock.Instant)?>(nil)

    init(
        keys: Keys, store: any EventStore, writer: GroupCommitWriter, metrics: ServerMetrics, watch: StoreWatch, connections: Connections,
        turns: [(String, Turns)], answers: Budget, certificate: Certificate?, startedAt: Int64
    ) {
        (self.keys, self.store, self.writer, self.metrics, self.watch) = (keys, store, writer, metrics, watch)
        (self.connections, self.turns, self.answers) = (connections, turns, answers)
        (self.certificate, self.startedAt) = (certificate, startedAt)
    }

    /// For an admin key.
    func fresh() -> Response { Self.response(Array(text().utf8)) }

    /// For everybody.
    func recent() -> Response {
        let bytes = last.withLock { last in
            if let last, .now < last.until { return last.text }
            let text = Array(text().utf8)
            last = (text, .now + ServerLimits.metricsAge)
            return text
        }
        return Self.response(bytes)
    }

    private static func response(_ bytes: [UInt8]) -> Response { Routes.response("text/plain; version=0.0.4", bytes) }

    private func text() -> String {
        var exposition = Exposition()
        exposition.add(.gauge, "hapax_build_info", "The program's version.", [([("version", HapaxVersion.current)], 1)])
        metrics.write(to: &exposition, projects: keys.projectNamesByID)
        let limits = connections.limits
        let connections = connections.figures
        let held = [
            ("arriving", connections.arrivingBytes, limits.arrivingBytes), ("requests", writer.heldBytes, limits.heldBytes),
            ("answers", answers.held, limits.untakenAnswers),
        ]
        exposition.add(
            .gauge, "hapax_held_bytes", "Bytes that are held: bodies that arrive, requests to be stored, answers that are not taken.",
            held.map { ([("what", $0.0)], Double($0.1)) })
        exposition.add(.gauge, "hapax_held_bytes_limit", "The most of each.", held.map { ([("what", $0.0)], Double($0.2)) })
        exposition.add(.gauge, "hapax_connections", "Open connections.", connections.open)
        exposition.add(.gauge, "hapax_connections_limit", "The most of them.", limits.connections)
        exposition.add(.counter, "hapax_connections_shed_total", "Connections closed to make room.", connections.shed)
        exposition.add(.counter, "hapax_bodies_cut_total", "Bodies refused since they arrived more slowly than others.", connections.cut)
        exposition.add(
            .gauge, "hapax_turns_waiting", "Requests that wait for their turn.", turns.map { ([("for", $0.0)], Double($0.1.waiting)) })
        watch.write(to: &exposition)
        exposition.add(
            .gauge, "hapax_crowded_month_events", "Events of months to come that have no partition since too many were stored for them.",
            store.crowdedMonths.map { ([("month", $0.month), ("project", $0.project)], Double($0.rows)) })
        if let certificate {
            exposition.add(
                .gauge, "hapax_certificate_end_timestamp_seconds", "When the certificate ends.", Int(certificate.end / 1_000))
            exposition.add(
                .gauge, "hapax_certificate_differs_from_files", "1 while the files of the certificate hold something that cannot be used.",
                certificate.problem == nil ? 0 : 1)
        }
        exposition.add(.gauge, "process_start_time_seconds", "When the server started.", Double(startedAt) / 1_000)
        ProcessFigures.write(to: &exposition)
        return exposition.text
    }
}
