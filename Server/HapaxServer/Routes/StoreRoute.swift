import HTTPTypes
import HapaxModel
import Hummingbird

/// `GET /v1/store`: the state of the store, for its operator.
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
        try keys.checkAdminOfAll(request.headers[.authorization])
        _ = try QueryParameters(request.uri.query, known: ["project"])
        // Checked in parallel with the questions below: if the store does not answer, their waits do not add up.
        async let isReady = readiness.isReady()
        var (overview, settled): (StoreOverview?, Int64?)
        do throws(StoreError) {
            overview = try await store.reader.overview()
            settled = try await store.sql.settled()
        } catch {
            failures.failed(error)
        }
        var writer = JSONWriter()
        let isAvailable = await isReady && overview != nil
        let (held, lastUpkeep) = (self.writer.heldBytes, metrics.lastUpkeep)
        writer.object { writer in
            writer.member("state", isAvailable ? "ready" : "unavailable")
            writer.member("version", overview?.version)
            writer.member("bytes", overview?.bytes)
            writer.member("rows_are", overview.map { $0.isEstimated ? "estimated" : "exact" })
            writer.member("months", list: overview?.parts ?? []) { writer, part in
                writer.object { writer in
                    writer.member("month", part.name)
                    writer.member("rows", part.rows)
                    writer.member("bytes", part.bytes)
                }
            }
            writer.member("months_ahead", overview?.monthsAhead)
            writer.member("crowded_months", list: store.crowdedMonths) { writer, month in
                writer.object { writer in
                    writer.member("month", month.month)
                    writer.member("project", month.project)
                    writer.member("rows", month.rows)
                }
            }
            writer.member("queue_bytes", held)
            writer.member("last_upkeep", lastUpkeep?.description)
            writer.member("settled_at", settled.map { Timestamp(clampingUnixMilliseconds: $0).description })
            writer.member("unknown_keys", live.unknownKeys)
            writer.member("projects", list: keys.projectNames) { writer, name in writer.string(name) }
        }
        var response = Routes.response("application/json", writer.bytes)
        response.headers[.cacheControl] = "no-store"
        return response
    }
}
