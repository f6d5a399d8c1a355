import HapaxModel

// What people write who come from elsewhere: the compiler says what to write instead.

extension EventID {
    /// An order's number is no UUID: its id is ``derived(name:key:)``, and a UUID's text is read by ``init(uuidString:)``.
    @available(*, unavailable, message: "an order's number makes an id by EventID.derived(name:key:); EventID(uuidString:) reads a UUID")
    public init(_ text: String) { self = .made }
}
