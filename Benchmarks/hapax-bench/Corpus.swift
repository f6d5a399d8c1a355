import Foundation
import HapaxModel

/// The events of one run: about 600 bytes each, the kind a web shop sends.
struct Corpus {
    /// Encoded events; equal for equal seeds except for their ids, which must be new to the store.
    let events: [[UInt8]]
    let ids: [EventID]

    /// - Parameters:
    ///   - hasRandomIDs: Whether ids are of version 4, as foreign senders make them, instead of 7.
    ///   - installs: Numbered as of so many, which send batches of `batchSize` in turn.
    init(
        count: Int, hasRandomIDs: Bool = false, installs: Int = 1, batchSize: Int = 1, properties: (Int) -> Properties = Self.properties
    ) {
        var generator = UUIDv7Generator()
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        var events: [[UInt8]] = []
        var ids: [EventID] = []
        events.reserveCapacity(count)
        for index in 0..<count {
            let random = hasRandomIDs ? EventID(uuidString: UUID().uuidString) : nil
            let id = random ?? generator.next(unixMilliseconds: now)
            let event = Event(
                id: id, name: "order_viewed", time: now + Int64(index), distinctID: "customer-\(index * 7_919 % 200_003)",
                sequence: Int64(index / batchSize / installs * batchSize + index % batchSize + 1), properties: properties(index))
            ids.append(id)
            events.append(event.encoded().bytes)
        }
        self.events = events
        self.ids = ids
    }

    var meanBytes: Int { events.isEmpty ? 0 : events.reduce(0) { $0 + $1.count } / events.count }

    static func properties(_ index: Int) -> Properties {
        [
            "$os": "Linux", "$os_version": "12.4", "$lib": "hapax-swift", "$lib_version": "0.1.0", "$app_version": "7.31.2",
            "order_id": "A-\(100_000 + index)", "amount": Double(index % 10_000) / 100, "currency": "EUR",
            "items": [["sku": "sku-\(index % 977)", "quantity": Int64(index % 5 + 1)] as Properties],
            "referrer": "https://shop.example/categories/garden/chairs?page=3&sort=price", "is_member": index % 3 == 0,
            "campaign": "spring-sale-2026", "screen": "checkout/confirm", "locale": "de_AT", "experiment": "checkout-b",
            "user_agent": "ExampleBrowser/131.0 (X11; Linux x86_64)",
        ]
    }
}
