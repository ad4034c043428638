"""An artifact as an HTTP endpoint: `mvpctl serve`.

    with listen("127.0.0.1", 8080) as socket:
        run(application(predictor, description, Limits()), socket)

Needs `mvprune[serve]`. What answers is any `Predictor`; an artifact's is that of an `Engine`.
"""
