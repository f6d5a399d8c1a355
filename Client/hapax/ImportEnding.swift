import HapaxClient

/// What ends an import before its last line, if anything does. A value: the first reason stays.
struct ImportEnding: Sendable {
    enum Reason: Sendable {
        case signal(Int32)
        /// With why nothing was delivered, if that is known.
        case impatience(DeliveryFailure?)
        /// The file or the queue could not be read or written.
        case damage(String)
    }

    private(set) var reason: Reason?
    private var isDrained = false

    /// - Returns: Whether it ends for this reason. Once all is delivered there is nothing left to be impatient of.
    mutating func stop(_ reason: Reason) -> Bool {
        if case .impatience = reason, isDrained { return false }
        guard self.reason == nil else { return false }
        self.reason = reason
        return true
    }

    /// Nothing is left to deliver.
    ///
    /// - Returns: Whether that is so: a reader that was stopped looks like the end of the file.
    mutating func drained() -> Bool {
        isDrained = reason == nil
        return isDrained
    }
}
