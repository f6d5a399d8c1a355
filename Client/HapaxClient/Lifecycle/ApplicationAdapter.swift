/// What the client must know of the app it lives in, and asks of it: the seam to UIKit, AppKit, a service, or a test.
///
/// Contract: the client keeps its adapter, so the adapter holds the client weakly or not at all. Calls come from any thread, one at a time
/// for the assertion, and return at once. Budgets are the adapter's data (R34).
public protocol ApplicationAdapter: AnyObject, Sendable {
    /// Whether the app is not shown at the moment; asked when the adapter is attached (R49).
    var isInBackground: Bool { get }

    /// How much longer the process may run in the background.
    var remainingBackgroundTime: Duration { get }

    /// How long ``LifecycleSignal/didEnterBackground`` may be held up where the app waits for its uploads
    /// (``UploadSettings/waitsInBackground``). 4 s by default: UIKit kills an app that does not return from there within
    /// about 5 s (https://developer.apple.com/documentation/uikit/uiapplicationdelegate/applicationdidenterbackground(_:)).
    var maximumBlockingTime: Duration { get }

    /// Asks for time in the background. When it is over, signal ``LifecycleSignal/backgroundTimeExpired`` to the client.
    ///
    /// - Returns: What ``endAssertion(_:)`` is called with, once; nil if there is none to be had: then nothing is sent (R31).
    func beginAssertion() -> Int?

    /// Gives the time back. Called once for each assertion that was begun, also after it expired.
    func endAssertion(_ assertion: Int)

    /// The client is shut down: signals have no use any more, and subscriptions end (R50). Assertions that are still held are given back
    /// later. Does nothing by default.
    func detach()
}

extension ApplicationAdapter {
    public var maximumBlockingTime: Duration { .seconds(4) }

    public func detach() {}
}
