import HapaxModel

/// Limits what is held at once, in total and by one project. With nothing held in total, or by the project, the respective limit does not apply:
/// a single amount has a limit of its own.
final class Budget: Sendable {
    private struct State {
        var held = 0
        var projects: [Int32: Int] = [:]
    }

    private let state = Locked(State())
    private let limit: Int
    private let limitOfOne: Int
    private let what: String

    /// - Parameters:
    ///   - limitOfOne: How much of the limit one project may hold.
    ///   - what: What is counted, in words for the refusal.
    init(limit: Int, limitOfOne: Int, what: String) {
        (self.limit, self.limitOfOne, self.what) = (limit, limitOfOne, what)
    }

    var held: Int { state.withLock { $0.held } }

    /// - Returns: A charge; the amount counts as long as it lives.
    /// - Throws: ``RequestProblem``: no room for this project, or none at all.
    func take(_ amount: Int, of project: Int32) throws(RequestProblem) -> Charge {
        let refusal: RequestProblem.Code? = state.withLock { state in
            let own = state.projects[project, default: 0]
            if own > 0, own + amount > limitOfOne { return .projectBusy }
            if state.held > 0, state.held + amount > limit { return .overloaded }
            state.held += amount
            state.projects[project] = own + amount
            return nil
        }
        if let refusal {
            throw RequestProblem(refusal, detail: "too many \(what)\(refusal == .projectBusy ? " of this project" : "")")
        }
        return Charge(budget: self, project: project, amount: amount)
    }

    /// Returns its amount to the budget when its last reference goes.
    final class Charge: Sendable {
        private let budget: Budget
        private let project: Int32
        private let amount: Int

        fileprivate init(budget: Budget, project: Int32, amount: Int) {
            (self.budget, self.project, self.amount) = (budget, project, amount)
        }

        deinit {
            budget.state.withLock { state in
                state.held -= amount
                let rest = state.projects[project, default: 0] - amount
                state.projects[project] = rest > 0 ? rest : nil
            }
        }
    }
}
