import Dispatch

/// Runs an actor that waits for the disk.
///
/// The language's own pool has one thread for each core, which the whole process shares, and no others take their place: a disk that hangs
/// would stop the host's tasks as well (https://github.com/swiftlang/swift-evolution/blob/main/proposals/0392-custom-actor-executors.md).
package final class BlockingExecutor: SerialExecutor {
    private let queue: DispatchQueue

    package init(label: String) {
        queue = DispatchQueue(label: label)
    }

    package func enqueue(_ job: UnownedJob) {
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    /// Runs once what waits for the disk or is long. On Linux the language's pool is Dispatch's global queues: what blocks there stops it as well.
    package static func run(_ label: String, _ body: @escaping @Sendable () -> Void) {
        DispatchQueue(label: label).async(execute: body)
    }

    package func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
}
