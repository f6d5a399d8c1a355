import Foundation
import HapaxClient

// The calls that most people write first, as they write them. Built and run by `make test` (.ci/run-tests), without a server.

struct Item: Codable {
    var sku: String
    var quantity: Int
}

struct Order: Codable {
    var id = "A-17"
    var amount = 12.5
    var items = [Item(sku: "chair", quantity: 2)]
    var coupon: String?
    var date = Date(timeIntervalSince1970: 1_763_679_999)
    var customer = UUID()
    var page = URL(string: "https://shop.example/orders/A-17")
    var isGift = false
    var plan = Plan.pro
}

enum Plan: String, Codable, PropertyValueConvertible {
    case free, pro
}

let order = Order()
let queue = FileManager.default.temporaryDirectory.appending(path: "hapax-usage-\(UUID())")
defer { try? FileManager.default.removeItem(at: queue) }

// 1. A client.
var configuration = EventClient.Configuration(
    server: URL(string: "http://127.0.0.1:1")!, writeKey: "demo", queueDirectory: queue)
configuration.uploads.interval = nil
let client = EventClient(configuration)

// 2. An event.
client.track("app_opened")

// 3. Properties from plain variables; nil leaves its key out.
client.track(
    "order_paid",
    properties: ["order": order.id, "amount": order.amount, "items": order.items.count, "coupon": order.coupon, "at": order.date])
client.track("order_paid", properties: ["order": order.id, "amount": order.amount])
client.track("order_seen", properties: ["order": order.id])
client.track("order_seen", properties: ["page": order.page, "gift": order.isGift, "plan": order.plan, "customer": order.customer])

// 4. Properties that are put together.
var properties: Properties = ["screen": "checkout", "step": 2]
properties["coupon"] = order.coupon
properties["skus"] = order.items.map(\.sku)
if order.isGift { properties["gift"] = true }
client.track("checkout_step", properties: properties)
client.track("checkout_step", properties: ["counts": Dictionary(grouping: order.items, by: \.sku).mapValues(\.count)])
client.track("checkout_step", properties: ["order": ["id": order.id, "amount": order.amount] as Properties])

// 5. A type of one's own.
client.track("order_shipped", encoding: order)

struct Shipment: TypedEvent, Encodable {
    var eventName: String { "order_shipped" }
    var order: String
    var parcels = 2
}
client.track(Shipment(order: order.id))

// 6. An event that must not be lost, and whose second try is the same event.
try await client.trackDurably("order_paid", properties: ["amount": order.amount], id: .derived(name: "order_paid", key: order.id))
try await client.trackDurably("order_paid", properties: ["amount": order.amount], id: .derived(name: "order_paid", key: order.id))

// 7. Who it was, and when it happened.
client.track("mail_opened", time: order.date, distinctID: "customer-17")
client.identify("customer-17")

// 8. What every event says.
client.updateCommonProperties { $0 = ["shop": "vienna", "build": 42] }

// 9. How long something took.
let timer = client.startTimer("checkout")
timer.end(properties: ["items": order.items.count])

// 10. What became of it.
let report = await client.flush()
switch report.failure {
case nil: print("all of it has been acknowledged")
case .transport(let failure)?: print("no answer, tried again later: \(failure)")
case .status(401, _)?: print("the write key is wrong")
case .consentPending?: print("the user has not been asked yet")
case let failure?: print(failure)
}
for letter in try await client.deadLetters.list() { print(letter.reason, letter.detail) }
let retried = try await client.deadLetters.retry().retried.count
let status = await client.status()
print("\(status.depth) events wait, \(report.stored) were delivered, \(status.deadLettered) are dead letters, \(retried) were put back")
await client.shutdown(within: .seconds(1))
guard status.depth == 14, status.deadLettered == 0, report.failure != nil else { exit(1) }
