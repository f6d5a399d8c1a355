import HTTPTypes
import HapaxModel
import Hummingbird

/// `GET /v1/store`: how the store is, for who runs it.
@available(macOS 14, *)
struct StoreRoute: Sendable {
    let keys: Keys
    let store: any EventStore
    let writer: GroupCommitWriter
    let readiness: ReadinessProbe
    let metrics: ServerMetrics
    let live: Live
    let failures: FailureLog

    func respond(to request: Request) async throws -> Response {
        try keys.checkAdmin(request.headers[.authorization])
        _ = try QueryParameters(request.uri.query, known: ["project"])
        // Asked at once: neither has to wait for the other where the store does not answer.
        async let isReady = readiness.isReady()
        var (overview, settled): (StoreOverview?, Int64?)
        do throws(StoreError) {
            overview = try await store.reader.overview()
            settled = try await store.reports.settled()
        } catch {
            failures.failed(error)
        }
        var writer = JSONWriter()
        writer.raw(#"{"state":"#)
        writer.string(await isReady && overview != nil ? "ready" : "unavailable")
        writer.raw(#","version":"#)
        writer.optional(overview?.version)
        writer.raw(#","bytes":"#)
        writer.optional(overview?.bytes)
        writer.raw(#","rows_are":"#)
        writer.optional(overview.map { $0.isEstimated ? "estimated" : "exact" })
        writer.raw(#","months":"#)
        writer.list(overview?.parts ?? []) { writer, part in
            writer.raw(#"{"month":"#)
            writer.string(part.name)
            writer.raw(#","rows":"#)
            writer.integer(part.rows)
            writer.raw(#","bytes":"#)
            writer.optional(part.bytes)
            writer.raw("}")
        }
        writer.raw(#","months_ahead":"#)
        writer.optional(overview?.monthsAhead)
        writer.raw(#","crowded_months":"#)
        writer.list(store.crowdedMonths) { writer, month in
            writer.raw(#"{"month":"#)
            writer.string(month.month)
            writer.raw(#","project":"#)
            writer.string(month.project)
            writer.raw(#","rows":"#)
            writer.integer(month.rows)
            writer.raw("}")
        }
        writer.raw(#","queue_bytes":"#)
        writer.integer(self.writer.heldBytes)
        writer.raw(#","last_upkeep":"#)
        writer.optional(metrics.lastUpkeep?.description)
        writer.raw(#","settled_at":"#)
        writer.optional(settled.map { Timestamp(clampingUnixMilliseconds: $0).description })
        writer.raw(#","unknown_keys":"#)
        writer.integer(live.unknownKeys)
        writer.raw(#","projects":"#)
        writer.list(keys.projectNames) { writer, name in writer.string(name) }
        writer.raw("}")
        var response = Routes.response("application/json", writer.bytes)
        response.headers[.cacheControl] = "no-store"
        return response
    }
}
