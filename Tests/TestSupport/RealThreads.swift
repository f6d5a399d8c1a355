import Foundation
import HapaxModel

/// Runs `body` on so many threads of their own at once; tasks would share as few threads as the machine has cores.
///
/// - Returns: What each thread returned, by its number, when all have ended.
package func onThreads<Value: Sendable>(_ count: Int, _ body: @escaping @Sendable (_ thread: Int) -> Value) async -> [Value] {
    let results = Locked<[Int: Value]>([:])
    let begin = Gate()
    await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
        let group = DispatchGroup()
        for number in 0..<count {
            group.enter()
            Thread.detachNewThread {
                begin.blockUntilOpen()
                let value = body(number)
                results.withLock { $0[number] = value }
                group.leave()
            }
        }
        begin.open()
        group.notify(queue: .global()) { continuation.resume() }
    }
    return results.withLock { results in results.sorted { $0.key < $1.key }.map(\.value) }
}
