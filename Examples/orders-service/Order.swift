import HapaxModel

/// An order as a customer's client sends it.
///
/// The number is the client's own, given before its first attempt: whoever repeats a request sends the same number.
struct Order: Codable, Sendable {
    var number: String
    var customer: String
    /// In cents.
    var amount: Int64

    /// The same for each attempt to place this order, in every process of the service: so it is one event, however often it is sent.
    var eventID: EventID { .derived(name: Self.placed, key: number) }

    static let placed = "order_placed"

    /// What is wrong with it, for people; nil if nothing is.
    var problem: String? {
        if !(1...100).contains(number.utf8.count) { return "number must have 1 to 100 bytes" }
        if !(1...EventLimits.maximumDistinctIDBytes).contains(customer.utf8.count) {
            return "customer must have 1 to \(EventLimits.maximumDistinctIDBytes) bytes"
        }
        // No server stores it, and JSON can say it.
        if (number + customer).contains("\0") { return "number and customer must not contain U+0000" }
        if amount < 0 { return "amount must not be negative" }
        return nil
    }
}
