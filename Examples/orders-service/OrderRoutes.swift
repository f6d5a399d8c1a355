import HapaxClient
import HapaxClientService
import HapaxModel
import Hummingbird

/// `POST /orders`: takes an order, and answers when its event is on disk.
@available(macOS 14, *)
struct OrderRoutes: Sendable {
    let events: EventClient

    struct Receipt: ResponseCodable {
        var number: String
    }

    func add(to router: Router<some RequestContext>) {
        router.get("/health") { _, _ in HTTPResponse.Status.ok }
        router.post("/orders") { request, context in
            let order = try await request.decode(as: Order.self, context: context)
            if let problem = order.problem { throw HTTPError(.badRequest, message: problem) }
            // A shop stores the order in its own database here, under its number, before it tells anybody.
            try await track(order)
            return EditedResponse(status: .created, response: Receipt(number: order.number))
        }
    }

    /// Returns when the event survives the end of this process. Until then nothing may be promised: a customer who got no answer repeats the
    /// request, here or at another process, and the derived id makes one event of all attempts.
    private func track(_ order: Order) async throws {
        do throws(TrackError) {
            try await events.trackDurably(
                Order.placed, properties: ["order": order.number, "amount": order.amount], id: order.eventID,
                distinctID: order.customer)
        } catch {
            switch error {
            // Without analytics the shop sells all the same; the service counts what it refused.
            case .refused(.disabled) where !events.isConfigured: return
            case .refused(.optedOut), .refused(.enricher): return
            // The client has not started yet, is shutting down, or the disk is full: somebody else, or a little later, can take it.
            case .refused, .notStored, .removed, .shutDown, .cancelled: throw HTTPError(.serviceUnavailable, headers: [.retryAfter: "1"])
            }
        }
    }
}
