import HTTPTypes
import HapaxModel
import Hummingbird
import Logging

/// A line for each request that was refused, or whose answer took longer than a second to begin; so many a second, because refused requests
/// cost a sender nothing. It never holds a key or content.
@available(macOS 14, *)
final class AccessLog: Sendable {
    private struct State {
        var secondBegan: ContinuousClock.Instant
        var lines = 0
        var suppressed = 0
    }

    private let logger: Logger
    private let proxies: TrustedProxies
    private let projectName: @Sendable (_ authorization: String?) -> String?
    private let state: Locked<State>

    init(
        logger: Logger, proxies: TrustedProxies = TrustedProxies(),
        projectName: @escaping @Sendable (_ authorization: String?) -> String? = { _ in nil }
    ) {
        (self.logger, self.proxies, self.projectName) = (logger, proxies, projectName)
        state = Locked(State(secondBegan: .now))
    }

    /// - Parameter problem: Why it was refused; nil if it was not.
    func answered(
        _ request: Request, _ context: IngestContext, _ status: HTTPResponse.Status, _ problem: RequestProblem?,
        after duration: Duration
    ) {
        guard problem != nil || duration >= ServerLimits.slowRequest, let suppressed = takeLine(at: .now) else { return }
        var metadata: Logger.Metadata = [
            "request.id": "\(context.requestID)", "http.method": "\(request.method.rawValue)", "http.status": "\(status.code)",
            "duration.ms": "\(Int(duration / .milliseconds(1)))",
        ]
        // The route's pattern, because a path can hold an id, or anything.
        metadata["http.route"] = context.endpointPath.map { "\($0)" }
        metadata["problem.code"] = problem.map { "\($0.code.rawValue)" }
        // Of other answers the sentence is our own; these may quote what was sent (I14).
        if let problem, ![400, 404].contains(status.code) { metadata["problem.detail"] = "\(problem.detail)" }
        metadata["project"] = projectName(request.headers[.authorization]).map { "\($0)" }
        let client = proxies.client(of: context.channel.remoteAddress?.ipAddress, forwarded: request.headers[values: .forwardedFor])
        metadata["client.address"] = client.map { "\($0)" }
        if suppressed > 0 { metadata["suppressed.count"] = "\(suppressed)" }
        logger.info(problem == nil ? "A request took long" : "A request was refused", metadata: metadata)
    }

    /// - Returns: How many lines have been left out before this one; nil if this one is, too.
    private func takeLine(at now: ContinuousClock.Instant) -> Int? {
        state.withLock { state in
            if now >= state.secondBegan + .seconds(1) { (state.secondBegan, state.lines) = (now, 0) }
            guard state.lines < ServerLimits.accessLinesPerSecond else {
                state.suppressed += 1
                return nil
            }
            state.lines += 1
            defer { state.suppressed = 0 }
            return state.suppressed
        }
    }
}

extension HTTPField.Name {
    static let forwardedFor = HTTPField.Name("X-Forwarded-For") ?? .via
}
