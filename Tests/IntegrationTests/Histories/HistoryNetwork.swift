import HapaxModel
import TestSupport

extension FaultPlan {
    /// Faults as a seed draws them.
    static func weather(_ weather: Weather, seed: UInt64) -> FaultPlan {
        switch weather {
        case .calm: return .pass
        case .down: return FaultPlan { _ in .resetBeforeRequest }
        case .rough:
            let random = Locked(SeededRandom(seed: seed))
            return FaultPlan { _ in
                random.withLock { random in
                    switch Int.random(in: 0..<20, using: &random) {
                    case 0: .dropAnswer
                    case 1: .cutRequest(after: Int.random(in: 1...400, using: &random))
                    case 2: .cutAnswer(after: Int.random(in: 1...300, using: &random))
                    case 3: .resetBeforeRequest
                    case 4: .resetAfterAnswer
                    case 5:
                        .replay(copies: 1, atOnce: Bool.random(using: &random), delivering: Bool.random(using: &random) ? .first : .last)
                    case 6: .dropAnswer
                    default: .pass
                    }
                }
            }
        }
    }
}
